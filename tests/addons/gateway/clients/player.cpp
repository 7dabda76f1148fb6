// Programs of the tests of surreal_client.hpp; player.mjs has the same with the same output.
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <sstream>

#include "cartpole.hpp"
#include "surreal_client.hpp"

namespace {

using surreal::Array;
using surreal::Bytes;
using surreal::List;
using surreal::Map;
using surreal::More;
using surreal::Session;
using surreal::Value;
using Words = std::vector<std::string>;

void wait_for_line() {
  std::cout << "waiting" << std::endl;
  std::string line;
  std::getline(std::cin, line);
}

void say(const surreal::Result& result) {
  std::cout << "episode " << result.total << " " << result.length << std::endl;
}

void episode(Session& session, int steps, const More& end = {}) {
  session.reset(List{0, 0});
  for (int step = 1; step < steps; ++step)
    session.step(1, std::array<float, 2>{0.0F, static_cast<float>(step)});
  say(session.end(1, end));
}

std::string hex(const Bytes& data) {
  std::string text;
  char pair[3];
  for (const std::uint8_t each : data) {
    std::snprintf(pair, sizeof pair, "%02x", each);
    text += pair;
  }
  return text;
}

std::string base64(const Bytes& data) {
  const char* letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (std::size_t at = 0; at < data.size(); at += 3) {
    std::uint32_t bits = 0;
    for (std::size_t index = 0; index < 3; ++index)
      bits = (bits << 8) | (at + index < data.size() ? data[at + index] : 0U);
    for (std::size_t index = 0; index < 4; ++index)
      text += at + index > data.size() ? '=' : letters[(bits >> (18 - 6 * index)) & 63];
  }
  return text;
}

std::string quoted(const std::string& text) {
  std::ostringstream out;
  out << '"';
  for (const char each : text) {
    char escaped[7];
    std::snprintf(escaped, sizeof escaped, "\\u%04x", static_cast<unsigned char>(each));
    if (each == '"' || each == '\\' || (each >= 0 && each < 32)) out << escaped;
    else out << each;
  }
  out << '"';
  return out.str();
}

std::string shown(const Value& value) {
  std::ostringstream out;
  out.precision(17);
  if (value.get<std::nullptr_t>()) out << "null";
  if (const auto* truth = value.get<bool>()) out << (*truth ? "true" : "false");
  if (const auto* whole = value.get<std::int64_t>()) out << *whole;
  if (const auto* large = value.get<std::uint64_t>()) out << *large;
  if (const auto* real = value.get<double>()) out << *real;
  if (const auto* text = value.get<std::string>()) out << quoted(*text);
  if (const auto* raw = value.get<Bytes>()) out << quoted(hex(*raw));
  if (const auto* array = value.get<Array>()) {
    out << "{\"dtype\":\"" << surreal::name_of(array->dtype) << "\",\"shape\":[";
    for (std::size_t axis = 0; axis < array->shape.size(); ++axis)
      out << (axis ? "," : "") << array->shape[axis];
    out << "],\"data\":\"" << base64(array->data) << "\"}";
  }
  if (const auto* list = value.get<List>()) {
    out << "[";
    for (std::size_t index = 0; index < list->size(); ++index)
      out << (index ? "," : "") << shown((*list)[index]);
    out << "]";
  }
  if (const auto* map = value.get<Map>()) {
    const char* comma = "{";
    for (const auto& [key, each] : *map) {
      out << comma << quoted(key) << ":" << shown(each);
      comma = ",";
    }
    out << (map->empty() ? "{}" : "}");
  }
  return out.str();
}

// Each line is a payload in hex: what it is, and the same packed again.
void decode(const Words&) {
  for (std::string line; std::getline(std::cin, line);) {
    Bytes data;
    for (std::size_t at = 0; at + 1 < line.size(); at += 2)
      data.push_back(static_cast<std::uint8_t>(std::stoi(line.substr(at, 2), nullptr, 16)));
    try {
      const Value value = surreal::unpack(data.data(), data.size());
      std::cout << hex(surreal::pack(value)) << " " << shown(value) << "\n";
    } catch (const surreal::ClientError& error) {
      std::cout << "error " << quoted(error.what()) << "\n";
    }
  }
}

void ends(const Words& words) {
  surreal::Options options;
  options.name = "robot";
  Session session(words.at(0), options);
  const auto* axes = session.observation_spec()["dim"].get<List>();
  std::cout << session.observation_spec()["type"].text() << " " << axes->at(0).integer() << " "
            << session.action_spec()["type"].text() << std::endl;
  episode(session, 3);
  More more;
  more.observation = List{0, 9};
  more.truncated = true;
  episode(session, 2, more);
  more.truncated = false;
  more.metrics = {{"speed", 2.5}};
  episode(session, 1, more);
  session.metrics({{"speed", 2.5}});
}

void many(const Words& words) {
  Session session(words.at(0));
  for (int index = 0; index < std::stoi(words.at(1)); ++index)
    episode(session, std::stoi(words.at(2)));
}

// Waits for a line before the end of the first episode.
void interrupted(const Words& words) {
  Session session(words.at(0));
  session.reset(List{0, 0});
  session.step(2, List{0, 1});
  wait_for_line();
  say(session.end(3));
  episode(session, 2);
}

// Waits for a line in the middle of an episode.
void halfway(const Words& words) {
  Session session(words.at(0));
  session.reset(List{0, 0});
  session.step(1, List{0, 1});
  wait_for_line();
  for (int step = 2; step < 5; ++step) session.step(1, List{0, step});
  say(session.end(1));
}

void loop(const Words& words) {
  Session session(words.at(0));
  const auto played = session.episodes([&](std::int64_t) { episode(session, 3); });
  std::cout << "played " << played << std::endl;
}

// Words are pairs of an option and its value.
void refused(const Words& words) {
  surreal::Options options;
  options.patience_seconds = 0.1;
  for (std::size_t at = 1; at + 1 < words.size(); at += 2) {
    if (words[at] == "token") options.token = words[at + 1];
    if (words[at] == "mode") options.mode = words[at + 1];
    if (words[at] == "name") options.name = words[at + 1];
    if (words[at] == "numEnvs") options.num_envs = std::stoi(words[at + 1]);
  }
  try {
    Session session(words.at(0), options);
    std::cout << "welcome" << std::endl;
  } catch (const surreal::Refused& error) {
    std::cout << "Refused " << error.code << " " << error.what() << std::endl;
  } catch (const surreal::Finished& error) {
    std::cout << "Finished  " << error.what() << std::endl;
  } catch (const surreal::Unavailable& error) {
    std::cout << "Unavailable  " << error.what() << std::endl;
  } catch (const surreal::InvalidAddress& error) {
    std::cout << "InvalidAddress  " << error.what() << std::endl;
  }
}

void corrected(const Words& words) {
  Session session(words.at(0));
  for (const List& wrong : {List{0}, List{0, std::nan("")}}) {
    try {
      session.reset(wrong);
    } catch (const surreal::Refused& error) {
      std::cout << error.code << std::endl;
    }
  }
  session.reset(List{0, 0});
  say(session.end(1));
}

void latency(const Words& words) {
  Session session(words.at(0));
  for (int index = 0; index < 20; ++index) episode(session, 4);
}

// Plays until an error comes, and shows it.
void endure(const Words& words) {
  surreal::Options options;
  options.patience_seconds = 0.2;
  for (int index = 0; index < std::stoi(words.at(1)); ++index) {
    try {
      Session session(words.at(0), options);
      for (;;) episode(session, 3);
    } catch (const surreal::ClientError& error) {
      std::cout << quoted(error.what()) << std::endl;
    }
  }
}

// The words are a state and actions; a line for each state that follows.
void cartpole(const Words& words) {
  std::array<double, 4> state{};
  std::istringstream numbers(words.at(0));
  for (double& each : state) {
    numbers >> each;
    numbers.ignore(1);
  }
  CartPole pole(state);
  std::cout.precision(17);
  for (const char action : words.at(1)) {
    pole.step(action - '0');
    for (const double each : pole.state) std::cout << each << " ";
    std::cout << pole.terminated() << " " << pole.truncated() << "\n";
  }
}

}  // namespace

int main(int count, char** given) {
  const std::map<std::string, void (*)(const Words&)> programs = {
      {"decode", decode},   {"ends", ends},       {"many", many},           {"loop", loop},
      {"refused", refused}, {"halfway", halfway}, {"interrupted", interrupted},
      {"latency", latency}, {"endure", endure},   {"corrected", corrected}, {"cartpole", cartpole}};
  const Words words(given + 1, given + count);
  programs.at(words.at(0))(Words(words.begin() + 1, words.end()));
}
