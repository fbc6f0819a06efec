"""The s3 engine: a queue in a bucket."""
