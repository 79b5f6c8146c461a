// Starts the embedded interpreter so that the host does not notice: no signal handlers, no
// change of locale, stdio or environment, and the environment the library was built in.

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "start.h"

#include <dlfcn.h>
#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <string>

#include "internal.h"

#ifndef SPECDEC_PYTHON_EXECUTABLE
#error "python -m specdec.runtime.embed build defines SPECDEC_PYTHON_EXECUTABLE"
#endif

namespace {

std::mutex start_mutex;
std::atomic<bool> starting{false};
std::atomic<bool> started{false};
std::atomic<bool> forked{false};

specdec_status fail(specdec_status code, const std::string &message) {
  return specdec_native_fail(code, message.c_str());
}

// In a forked child exit() would run ONNX Runtime's destructors, which wait for threads that a
// fork does not copy. So the child, once it calls exit(), flushes its streams and ends there.
void leave_at_exit(int code, void *) {
  std::fflush(nullptr);
  _exit(code);
}

void after_fork_in_child() {
  if (!starting.load()) return;
  forked.store(true);
  on_exit(&leave_at_exit, nullptr);
}

// Extension modules look for the interpreter's symbols in the global scope, where they are
// missing after a dlopen(RTLD_LOCAL) of libspecdec.so.
void make_interpreter_global() {
  Dl_info where;
  if (dladdr(reinterpret_cast<void *>(&Py_IsInitialized), &where) != 0)
    dlopen(where.dli_fname, RTLD_NOW | RTLD_GLOBAL | RTLD_NOLOAD);
}

std::string status_text(const PyStatus &status) {
  return status.err_msg != nullptr ? status.err_msg : "no reason given";
}

specdec_status start_interpreter(const std::string &python) {
  PyPreConfig before;
  PyPreConfig_InitIsolatedConfig(&before);  // leaves LC_CTYPE alone
  before.utf8_mode = 1;                     // so text does not depend on it
  PyStatus status = Py_PreInitialize(&before);
  if (PyStatus_Exception(status))
    return fail(SPECDEC_NO_PYTHON, "Python does not start: " + status_text(status));

  PyConfig config;
  PyConfig_InitIsolatedConfig(&config);  // no environment, no arguments, no signal handlers
  config.isolated = 0;
  config.user_site_directory = 1;  // for installations outside a virtual environment
  // Prefix, site-packages and pyvenv.cfg are found from the executable's place.
  status = PyConfig_SetBytesString(&config, &config.program_name, python.c_str());
  if (!PyStatus_Exception(status))
    status = PyConfig_SetBytesString(&config, &config.executable, python.c_str());
  if (!PyStatus_Exception(status)) status = Py_InitializeFromConfig(&config);
  PyConfig_Clear(&config);
  if (PyStatus_Exception(status))
    return fail(SPECDEC_NO_PYTHON, "Python does not start as " + python + ": " +
                                       status_text(status));
  PyEval_SaveThread();  // no thread of the host keeps the lock
  return SPECDEC_OK;
}

// Why a module cannot be imported, or nothing.
std::string import_failure(const char *module) {
  const PyGILState_STATE lock = PyGILState_Ensure();
  std::string reason;
  PyObject *found = PyImport_ImportModule(module);
  if (found == nullptr) {
    PyObject *kind = nullptr, *error = nullptr, *trace = nullptr;
    PyErr_Fetch(&kind, &error, &trace);
    PyObject *text = error != nullptr ? PyObject_Str(error) : nullptr;
    const char *utf8 = text != nullptr ? PyUnicode_AsUTF8(text) : nullptr;
    reason = utf8 != nullptr && utf8[0] != '\0' ? utf8 : "it fails without a reason";
    PyErr_Clear();
    for (PyObject *object : {kind, error, trace, text}) Py_XDECREF(object);
  }
  Py_XDECREF(found);
  PyGILState_Release(lock);
  return reason;
}

std::string choose_python(const char *python) {
  if (python != nullptr) return python;
  const char *chosen = std::getenv("SPECDEC_PYTHON");
  return chosen != nullptr && chosen[0] != '\0' ? chosen : SPECDEC_PYTHON_EXECUTABLE;
}

specdec_status start_python(const char *python) {
  if (!Py_IsInitialized()) {
    const std::string executable = choose_python(python);
    if (access(executable.c_str(), X_OK) != 0)
      return fail(SPECDEC_NO_PYTHON,
                  "the Python environment at " + executable +
                      " is not there; build the library again, or name another interpreter of "
                      "the same version in SPECDEC_PYTHON or specdec_start");
    make_interpreter_global();
    const specdec_status status = start_interpreter(executable);
    if (status != SPECDEC_OK) return status;
  }
  for (const char *module : {"_cffi_backend", "specdec.runtime.embed.c_api"}) {
    const std::string reason = import_failure(module);
    if (!reason.empty())
      return fail(SPECDEC_NO_PYTHON, std::string("Python has started but cannot import ") + module +
                                         ": " + reason +
                                         "; install specdec-edge, cffi and onnxruntime in its environment");
  }
  const specdec_status status = specdec_py_start();
  if (status == SPECDEC_ATTACHED) return SPECDEC_OK;
  return status != 0 ? status
                     : fail(SPECDEC_NO_PYTHON,
                            "cffi did not start, for the reason it gave on stderr; install the "
                            "cffi that built this library, or build it again");
}

specdec_status start_once(const char *python) {
  std::lock_guard<std::mutex> guard(start_mutex);
  if (started.load()) return SPECDEC_OK;
  static const int watching = pthread_atfork(nullptr, nullptr, &after_fork_in_child);
  if (watching != 0) return fail(SPECDEC_INTERNAL, "pthread_atfork failed: out of memory");
  starting.store(true);
  const specdec_status status = start_python(python);
  started.store(status == SPECDEC_OK);
  starting.store(status == SPECDEC_OK);
  return status;
}

}  // namespace

specdec_status specdec_ready(const char *python) {
  if (forked.load())
    return fail(SPECDEC_FORKED,
                "this process was forked after the library had started, and engines do not "
                "survive a fork; fork before the first call, or start a new program (exec)");
  return started.load() ? SPECDEC_OK : start_once(python);
}
