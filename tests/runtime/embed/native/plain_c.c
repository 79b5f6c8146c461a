/* plain_c PACKAGE: the header is C, and C alone is enough. */
#include <specdec.h>

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static int32_t show(const specdec_chunk *chunk, void *user) {
  ++*(int *)user;
  fwrite(chunk->text, 1, chunk->text_bytes, stdout);
  return 0;
}

int main(int argc, char **argv) {
  specdec_decoder *decoder = NULL;
  specdec_result result;
  specdec_info info;
  specdec_prompt prompt = {SPECDEC_TEXT, "abc", 3};
  const int32_t ids[] = {97, 98, 99};
  int calls = 0;
  if (argc < 2) return 2;
  if (specdec_abi_version() != SPECDEC_ABI_VERSION ||
      specdec_open(SPECDEC_ABI_VERSION, argv[1], NULL, &decoder) != SPECDEC_OK ||
      specdec_get_info(decoder, &info) != SPECDEC_OK) {
    fprintf(stderr, "%s\n", specdec_last_error());
    return 1;
  }
  printf("template %d length %" PRId64 "\n", info.has_chat_template, info.max_length);
  if (specdec_generate(decoder, &prompt, "{\"max_new_tokens\": 4}", show, &calls, &result) != 0)
    return 1;
  printf(" = %s, %zu tokens, %d\n", result.text, result.num_tokens, calls > 0);
  specdec_result_free(&result);
  specdec_result_free(&result); /* zeroed: nothing happens */
  prompt.kind = SPECDEC_TOKENS;
  prompt.data = ids;
  if (specdec_generate(decoder, &prompt, "{\"max_new_tokens\": 1, \"logprobs\": 1}", NULL, NULL,
                       &result) != 0) {
    fprintf(stderr, "%s\n", specdec_last_error());
    return 1;
  }
  printf("from ids: %" PRId32 " logprobs %d\n", result.token_ids[0],
         strstr(result.json, "\"logprobs\"") != NULL);
  specdec_result_free(&result);
  prompt.kind = SPECDEC_MESSAGES;
  prompt.data = "[{\"role\": \"user\", \"content\": \"xy\"}]";
  prompt.size = strlen(prompt.data);
  if (specdec_generate(decoder, &prompt, NULL, NULL, NULL, &result) != 0) return 1;
  printf("from messages: %s reason %d\n", result.text, result.finish_reason);
  specdec_result_free(&result);
  return specdec_close(decoder);
}
