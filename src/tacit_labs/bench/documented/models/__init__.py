"""Models nobody tuned for, beside a plain loop, a plain step and Opacus: what ``tacit bench models`` runs."""
