"""Reading spreadsheets that people filled in: files, cells, numbers with units, headers.

Nothing in an upload is evaluated: no formula, no macro, no link.
"""
