// Generates from a package and streams the text to stdout.
//
//   generate PACKAGE "prompt" [max_new_tokens]
#include <specdec.hpp>

#include <cstdlib>
#include <iostream>

int main(int argc, char **argv) {
  if (argc < 3) {
    std::cerr << "usage: generate PACKAGE PROMPT [MAX_NEW_TOKENS]\n";
    return 2;
  }
  try {
    specdec::Decoder decoder(argv[1]);
    const auto options = specdec::Options().max_new_tokens(argc > 3 ? std::atoi(argv[3]) : 64);
    const auto result = decoder.generate(argv[2], options, [](const specdec::Chunk &chunk) {
      std::cout << chunk.text << std::flush;
      return true;  // false would cancel
    });
    std::cout << '\n';
    std::cerr << result.token_ids.size() << " tokens, " << result.stats.tokens_per_second
              << " tokens/s, acceptance " << result.stats.acceptance_rate << '\n';
  } catch (const specdec::Error &error) {
    std::cerr << "error " << error.code() << ": " << error.what() << '\n';
    return 1;
  }
}
