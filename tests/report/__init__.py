"""From a finding to a report: smaller cases, and scripts that confirm them."""
