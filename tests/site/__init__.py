"""Tests of the site's own process."""  # noqa: A005 - it mirrors tacit.site
