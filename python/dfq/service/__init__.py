"""A worker as a service of systemd: its unit file, and the commands that look after it."""
