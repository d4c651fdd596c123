"""All results that rounding can give, and what lies outside of them."""
