"""At which sizes, and since which release, a target changes how it adds."""
