"""What `shardsdk` does at a prompt, one file for each command; `shardsdk.cli` puts them together.

A command imports what it needs once it runs: `--help` is to be quick.  What a user can mend is a
`ConfigurationError`, which is one line on stderr.
"""
