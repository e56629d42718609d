"""The measurements that README and docs quote beyond ``tacit bench``; each script in ``benchmarks/`` calls one."""
