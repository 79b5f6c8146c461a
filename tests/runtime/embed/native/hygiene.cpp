// hygiene PACKAGE: what a host would trip over is as it was; a forked child is answered.
#include <specdec.hpp>

#include <clocale>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>

#include <sys/wait.h>
#include <unistd.h>

namespace {

struct Surroundings {
  void (*handlers[32])(int);
  std::string locale, folder;

  static Surroundings now() {
    Surroundings seen;
    for (int number = 1; number < 32; ++number) {
      struct sigaction action {};
      sigaction(number, nullptr, &action);
      seen.handlers[number] = action.sa_handler;
    }
    seen.locale = std::setlocale(LC_ALL, nullptr);
    char *folder = getcwd(nullptr, 0);
    seen.folder = folder;
    std::free(folder);
    return seen;
  }
};

void compare(const Surroundings &before, const Surroundings &after) {
  for (int number = 1; number < 32; ++number)
    if (before.handlers[number] != after.handlers[number])
      std::printf("the handler of signal %d has changed\n", number);
  if (before.locale != after.locale)
    std::printf("the locale is %s, was %s\n", after.locale.c_str(), before.locale.c_str());
  if (before.folder != after.folder) std::printf("the working directory has changed\n");
}

int child(specdec::Decoder &decoder) {
  specdec::Status status;
  decoder.generate("abc", specdec::Options().max_new_tokens(3), nullptr, status);
  std::printf("child: %d\n", status.code);
  std::printf("child open: %d\n", specdec_start(nullptr));
  return 0;  // and the destructors of a decoder that is not the child's
}

}  // namespace

int main(int argc, char **argv) {
  if (argc < 2) return 2;
  const pid_t early = fork();  // before the library has started: a process like any other
  const auto before = Surroundings::now();
  specdec::Decoder decoder(argv[1]);
  const auto result = decoder.generate("abc", specdec::Options().max_new_tokens(3));
  if (early == 0) return result.text == "def" ? 0 : 1;
  compare(before, Surroundings::now());
  int ended = -1;
  waitpid(early, &ended, 0);
  std::printf("early child: %d\n", ended);
  std::fflush(stdout);
  const pid_t late = fork();
  if (late == 0) return child(decoder);
  waitpid(late, &ended, 0);
  std::printf("late child: %d\n", ended);
  const auto again = decoder.generate("abc", specdec::Options().max_new_tokens(3));
  std::printf("parent: %s\n", again.text.c_str());
  return 0;
}
