"""The command line: one file for each subject; what is shown is inert, what is exact is JSON."""
