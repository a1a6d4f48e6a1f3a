"""What people see: tables, progress, descriptions."""
