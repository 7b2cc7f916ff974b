"""The series store: columns, and the compiled kernels that write them."""
