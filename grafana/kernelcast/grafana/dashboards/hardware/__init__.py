"""Rows of panels about GPUs, TPUs, their links, errors and users; `pages.hardware` places them."""
