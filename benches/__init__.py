"""What the file queue costs: against bare system calls, its own first design, and its peers."""
