"""The resources: a module for each kind of records that people deal with over HTTP. ``api.app``
serves whatever ``Resource`` a module here declares."""
