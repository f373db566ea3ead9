"""The workshop's experiments: small measurements that show how inference works, on the reader's own machine."""
