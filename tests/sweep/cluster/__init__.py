"""Questions run on other machines: nodes that answer, die and lie."""
