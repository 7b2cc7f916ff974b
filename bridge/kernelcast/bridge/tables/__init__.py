"""The arrays that hold series and what they share: families, labels, producers, bounds. All other rooms read them."""
