"""S3 and what speaks like it for Millpond: a state backend and a checkpoint manager, on boto3."""
