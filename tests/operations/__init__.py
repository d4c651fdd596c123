"""What is computed: cases, what each output reads, each operation on every library."""
