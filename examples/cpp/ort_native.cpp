// One greedy step of plain decoding from a package's target, with ONNX Runtime's C++ API alone:
// no Python, no specdec library. docs/packages.md, "Engine graphs: inputs and outputs", is all
// it builds on.
//
//   ort_native TARGET_GRAPH MAX_LENGTH LOGITS_FILE ID...
//
// Prints the most probable next token and writes the float32 logits it comes from. TARGET_GRAPH
// and MAX_LENGTH are `engines.target.graph` and `.max_length` of specdec.json.
#include <onnxruntime_cxx_api.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

// One key or value buffer of a layer, in the element type the graph declares.
Ort::Value make_cache(Ort::AllocatorWithDefaultOptions &allocator, const Ort::TypeInfo &type,
                      int64_t capacity) {
  const auto declared = type.GetTensorTypeAndShapeInfo();
  const auto shape = declared.GetShape();  // [batch, kv_heads, capacity, head_size]
  const int64_t sizes[] = {1, shape[1], capacity, shape[3]};
  return Ort::Value::CreateTensor(allocator, sizes, 4, declared.GetElementType());
}

template <typename T>
Ort::Value wrap(const Ort::MemoryInfo &memory, std::vector<T> &data,
                const std::vector<int64_t> &shape) {
  return Ort::Value::CreateTensor<T>(memory, data.data(), data.size(), shape.data(),
                                     shape.size());
}

std::vector<float> run(Ort::Session &session, std::vector<int64_t> ids, int64_t capacity) {
  const auto rows = static_cast<int64_t>(ids.size());
  Ort::AllocatorWithDefaultOptions allocator;
  const auto memory = Ort::MemoryInfo::CreateCpu(OrtArenaAllocator, OrtMemTypeDefault);
  std::vector<int64_t> positions(ids.size()), logit_rows{rows - 1};  // score the last row only
  for (int64_t i = 0; i < rows; ++i) positions[static_cast<size_t>(i)] = i;
  std::vector<int32_t> seqlens_k{static_cast<int32_t>(rows - 1)};
  std::vector<int32_t> total{static_cast<int32_t>(rows)};
  std::vector<Ort::Value> caches;  // alive until the run is over
  caches.reserve(session.GetInputCount());
  Ort::IoBinding binding(session);
  for (size_t i = 0; i < session.GetInputCount(); ++i) {
    const std::string name = session.GetInputNameAllocated(i, allocator).get();
    const std::string past = "past_key_values.";
    if (name.compare(0, past.size(), past) == 0) {
      caches.push_back(make_cache(allocator, session.GetInputTypeInfo(i), capacity));
      binding.BindInput(name.c_str(), caches.back());
      binding.BindOutput(("present." + name.substr(past.size())).c_str(), caches.back());
    } else if (name == "input_ids") {
      binding.BindInput("input_ids", wrap(memory, ids, {1, rows}));
    } else if (name == "position_ids") {
      binding.BindInput("position_ids", wrap(memory, positions, {1, rows}));
    } else if (name == "seqlens_k") {
      binding.BindInput("seqlens_k", wrap(memory, seqlens_k, {1}));
    } else if (name == "total_sequence_length") {
      binding.BindInput("total_sequence_length", wrap(memory, total, {1}));
    } else if (name == "logit_rows") {
      binding.BindInput("logit_rows", wrap(memory, logit_rows, {1}));
    } else {
      throw std::runtime_error("the graph has an input this program does not know: " + name);
    }
  }
  binding.BindOutput("logits", memory);
  session.Run(Ort::RunOptions{nullptr}, binding);
  const auto names = binding.GetOutputNames();
  const auto values = binding.GetOutputValues();
  const auto where = std::find(names.begin(), names.end(), "logits") - names.begin();
  const auto &logits = values[static_cast<size_t>(where)];
  const size_t count = logits.GetTensorTypeAndShapeInfo().GetElementCount();
  const float *data = logits.GetTensorData<float>();
  return std::vector<float>(data, data + count);
}

}  // namespace

int main(int argc, char **argv) {
  if (argc < 5) {
    std::cerr << "usage: ort_native TARGET_GRAPH MAX_LENGTH LOGITS_FILE ID...\n";
    return 2;
  }
  try {
    Ort::Env environment(ORT_LOGGING_LEVEL_ERROR, "ort_native");
    Ort::Session session(environment, argv[1], Ort::SessionOptions());
    std::vector<int64_t> ids;
    for (int i = 4; i < argc; ++i) ids.push_back(std::atoll(argv[i]));
    const auto logits = run(session, ids, std::atoll(argv[2]));
    std::ofstream(argv[3], std::ios::binary)
        .write(reinterpret_cast<const char *>(logits.data()),
               static_cast<std::streamsize>(logits.size() * sizeof(float)));
    std::cout << std::max_element(logits.begin(), logits.end()) - logits.begin() << '\n';
  } catch (const std::exception &error) {
    std::cerr << "error: " << error.what() << '\n';
    return 1;
  }
}
