"""What builds and checks dfq, and is no part of it."""
