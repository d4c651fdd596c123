"""Where it is computed: libraries, their options and releases, the machine."""
