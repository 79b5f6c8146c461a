// A small HTTP service: server-sent events from several requests at once over one package.
//
//   service PACKAGE [PORT=8080] [DECODERS=2]
//   curl -N -H 'Content-Type: text/plain' -d 'Once upon a time'
//        'localhost:8080/generate?max_new_tokens=64&temperature=0.7&seed=1'
//
// The body is the prompt (plain text, not a form) and the query holds the sampling options. A
// decoder runs one request at a time, so a pool holds several and a request waits for a free
// one. A client that goes away cancels its request; SIGTERM or SIGINT ends the service in order.
#include <httplib.h>
#include <specdec.hpp>

#include <pthread.h>
#include <signal.h>

#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <iostream>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace {

// Lends decoders; a caller waits until one is free.
class Pool {
 public:
  Pool(const std::string &package, int count) {
    for (int i = 0; i < count; ++i) decoders_.emplace_back(package);
    for (auto &decoder : decoders_) free_.push_back(&decoder);
  }

  specdec::Decoder *take() {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [&] { return !free_.empty(); });
    specdec::Decoder *decoder = free_.back();
    free_.pop_back();
    return decoder;
  }

  void give_back(specdec::Decoder *decoder) {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      free_.push_back(decoder);
    }
    changed_.notify_one();
  }

  void cancel_all() {
    for (auto &decoder : decoders_) decoder.cancel();
  }

 private:
  std::vector<specdec::Decoder> decoders_;
  std::vector<specdec::Decoder *> free_;
  std::mutex mutex_;
  std::condition_variable changed_;
};

// A query value as JSON: numbers and true/false as they are, everything else a string.
std::string to_json(const std::string &value) {
  const bool is_number = !value.empty() &&
                         value.find_first_not_of("0123456789.-+eE") == std::string::npos &&
                         value.find_first_of("0123456789") != std::string::npos;
  return is_number || value == "true" || value == "false" ? value : specdec::json_string(value);
}

bool send(httplib::DataSink &sink, const std::string &event, const std::string &data) {
  const std::string text = "event: " + event + "\ndata: " + data + "\n\n";
  return sink.write(text.data(), text.size());
}

bool stream(Pool &pool, const std::string &prompt, const specdec::Options &options,
            httplib::DataSink &sink) {
  specdec::Decoder *decoder = pool.take();
  try {
    const auto result = decoder->generate(prompt, options, [&](const specdec::Chunk &chunk) {
      return send(sink, "text", specdec::json_string(chunk.text));
    });
    send(sink, "done", result.json);
  } catch (const specdec::Error &error) {
    send(sink, "error", "{\"code\":" + std::to_string(error.code()) +
                            ",\"message\":" + specdec::json_string(error.what()) + '}');
  }
  pool.give_back(decoder);
  sink.done();
  return true;
}

void add_routes(httplib::Server &server, Pool &pool) {
  server.Get("/health", [](const httplib::Request &, httplib::Response &response) {
    response.set_content("ok\n", "text/plain");
  });
  server.Post("/generate", [&pool](const httplib::Request &request, httplib::Response &response) {
    if (request.get_header_value("Content-Type") != "text/plain") {
      response.status = 415;
      response.set_content("send the prompt as Content-Type: text/plain\n", "text/plain");
      return;
    }
    specdec::Options options;
    for (const auto &query : request.params) options.set(query.first, to_json(query.second));
    response.set_chunked_content_provider(
        "text/event-stream", [&pool, prompt = request.body, options](
                                 size_t, httplib::DataSink &sink) {
          return stream(pool, prompt, options, sink);
        });
  });
}

}  // namespace

int main(int argc, char **argv) {
  if (argc < 2) {
    std::cerr << "usage: service PACKAGE [PORT] [DECODERS]\n";
    return 2;
  }
  sigset_t ends;
  sigemptyset(&ends);
  sigaddset(&ends, SIGINT);
  sigaddset(&ends, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &ends, nullptr);  // before any thread: one of ours waits for them
  try {
    Pool pool(argv[1], argc > 3 ? std::atoi(argv[3]) : 2);
    httplib::Server server;
    server.new_task_queue = [] { return new httplib::ThreadPool(64); };  // most of them wait
    add_routes(server, pool);
    int port = argc > 2 ? std::atoi(argv[2]) : 8080;
    if (port == 0)
      port = server.bind_to_any_port("127.0.0.1");
    else if (!server.bind_to_port("127.0.0.1", port))
      port = -1;
    if (port < 0) throw std::runtime_error("the port cannot be bound");
    std::thread waiter([&] {
      int signal = 0;
      sigwait(&ends, &signal);
      while (!server.is_running()) std::this_thread::sleep_for(std::chrono::milliseconds(10));
      server.stop();
      pool.cancel_all();
    });
    std::cout << "listening on http://127.0.0.1:" << port << std::endl;
    server.listen_after_bind();
    waiter.join();
  } catch (const std::exception &error) {
    std::cerr << "error: " << error.what() << '\n';
    return 1;
  }
}
