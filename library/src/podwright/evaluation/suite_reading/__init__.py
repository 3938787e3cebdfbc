"""Reading suites: the file, what it names, and everything that is wrong in them."""
