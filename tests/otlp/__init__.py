"""A real receiver of OTLP: Elastic's mockotlpserver, from npm, and what it receives."""
