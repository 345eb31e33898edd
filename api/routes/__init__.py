"""One file a subject. A handler translates, calls one verb, translates back."""
