// options: every sampling option through the typed builder, as the JSON it makes.
#include <specdec.hpp>

#include <iostream>
#include <limits>
#include <locale>

namespace {

struct Comma : std::numpunct<char> {
  char do_decimal_point() const override { return ','; }
  std::string do_grouping() const override { return "\3"; }
};

}  // namespace

int main() {
  std::locale::global(std::locale(std::locale(), new Comma));  // must not show in the numbers
  const auto options = specdec::Options()
                           .max_new_tokens(12345)
                           .min_new_tokens(2)
                           .temperature(0.1)
                           .top_k(40)
                           .top_p(0.95)
                           .min_p(0.05)
                           .repetition_penalty(1.1)
                           .presence_penalty(-0.5)
                           .frequency_penalty(0.25)
                           .no_repeat_ngram_size(3)
                           .logit_bias({{7, -std::numeric_limits<double>::infinity()}, {9, 1.5}})
                           .stop({"\n\n", "\"end\"\\", "\xc3\xa4"})
                           .stop_token_ids({3, 4})
                           .ignore_eos()
                           .seed(18446744073709551615ULL)
                           .logprobs(5)
                           .num_draft_tokens(6)
                           .draft_temperature(1e-3)
                           .verify("token")
                           .skip_special_tokens(false)
                           .truncate_prompt_left()
                           .tools("[{\"name\": \"look\"}]")
                           .chat_template_kwargs("{\"enable_thinking\": false}")
                           .model_defaults()
                           .reuse_prefix();
  std::cout << options.json() << '\n' << specdec::Options().json() << '\n';
}
