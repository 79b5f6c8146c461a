/* unload LIBRARY PACKAGE: loaded at run time with local symbols, closed, and loaded again. */
#include <specdec.h>

#include <dlfcn.h>
#include <stdio.h>

typedef specdec_status (*open_function)(int32_t, const char *, const char *, specdec_decoder **);
typedef specdec_status (*close_function)(specdec_decoder *);
typedef const char *(*error_function)(void);

static int use(const char *library, const char *package) {
  specdec_decoder *decoder = NULL;
  void *handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
  open_function open_package;
  close_function close_decoder;
  error_function last_error;
  if (handle == NULL) {
    printf("%s\n", dlerror());
    return 1;
  }
  *(void **)&open_package = dlsym(handle, "specdec_open");
  *(void **)&close_decoder = dlsym(handle, "specdec_close");
  *(void **)&last_error = dlsym(handle, "specdec_last_error");
  if (open_package(SPECDEC_ABI_VERSION, package, NULL, &decoder) != SPECDEC_OK) {
    printf("%s\n", last_error());
    return 1;
  }
  printf("close %d\n", close_decoder(decoder));
  printf("dlclose %d\n", dlclose(handle));
  printf("still there %d\n", dlopen(library, RTLD_NOW | RTLD_NOLOAD) != NULL);
  return 0;
}

int main(int argc, char **argv) {
  return argc < 3 || use(argv[1], argv[2]) || use(argv[1], argv[2]);
}
