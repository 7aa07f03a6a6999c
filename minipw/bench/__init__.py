"""Step times against the machine's own floor."""
