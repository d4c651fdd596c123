"""From a finding to a report: smaller cases, scripts that confirm them, public reports."""
