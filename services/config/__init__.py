"""Configuration files, read strictly, and KubeletConfiguration."""
