"""Commands about servers, pilots and hosts."""
