"""What people write on a command line or in a script, made plain: values, units, directives, names of runs."""
