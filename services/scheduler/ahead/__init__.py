"""Look-ahead: fewer messages for a session, with the same decisions.

Without it a round costs a message from the world, an exchange with the queue before its first head,
and another one for each batch of decisions. Where pods come one by one, these cost more than the
decisions. An answer that the session can derive need not be waited for, as in conservative parallel
simulation (Chandy and Misra): nothing is guessed, so nothing is ever rolled back.

- `windows`: rounds of later moments come with a request, because the world knows that no decision
  can change them. The next one is run if every pod of the one before was bound and no pod waits.
- `heads`: a batch that tries all pods that can be popped leaves none; then the next heads are the
  pods that are added, until something may move a pod that waits. Of more than a batch may have,
  each batch leaves the others. None of it needs an exchange, but one for all of those together.
- `held`: operations whose answer the session can derive travel with the next exchange. The
  queue has no clock, and each operation has its own time, so that arriving late changes nothing. Of
  pods that come and go among them the queue needs the number only.

A session uses three things here: `ForeseenHeads` wraps its queue, `read_window` returns
the rounds that may follow a round, and `Held` is where its queue's client keeps operations. Without
them it makes the same decisions (`test_look_ahead_changes_no_decision`, and `test_session.py`,
which runs with look-ahead and without).
"""
