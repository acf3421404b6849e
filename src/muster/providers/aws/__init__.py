"""The provider ``aws-ec2``: slices of EC2 instances, known by their tags."""
