"""What runs this host for us, and what it has: Slurm jobs, Kubernetes pods, GPUs, memory, and what keeps a node up."""
