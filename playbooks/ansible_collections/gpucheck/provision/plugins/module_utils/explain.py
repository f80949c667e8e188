"""Errors that stop a module, reported as one sentence of a task's result: never a traceback.

Runs on the managed host: standard library only, Python 3.6 or newer.
"""

from contextlib import contextmanager

from ansible_collections.gpucheck.provision.plugins.module_utils.call import Refused
from ansible_collections.gpucheck.provision.plugins.module_utils.readers.files import Unreadable


@contextmanager
def explained(module, host, refused="{}."):
    """Fail the task with what went wrong on a host whose plan is carried out.

    ``refused``: the sentences around the error message of a program that failed.
    """
    try:
        yield
    except Unreadable as error:
        module.fail_json(msg="{}: this host cannot be read: {}".format(host, error))
    except Refused as error:
        module.fail_json(msg="{}: {}".format(host, refused.format(str(error).rstrip("."))))
    except OSError as error:
        module.fail_json(msg="{}: {}. Free space there or mount it writable, then run again.".format(host, error))
    except (KeyError, TypeError, ValueError) as error:
        module.fail_json(msg="{}: its plan is not a gpucheck.plan/1 document: {!r}".format(host, error))
