"""What users type, call and look at: commands, functions of ``probe``, pictures."""
