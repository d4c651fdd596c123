"""In which order each output is added: revealed, proved and replayed."""
