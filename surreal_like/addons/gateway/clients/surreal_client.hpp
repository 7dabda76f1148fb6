/**
 * Client of a surreal_like gateway: an environment in C++ drives an agent.
 *
 * This file may be copied; it needs C++17, POSIX sockets and nothing else. For TLS put stunnel or a
 * similar program in front. The protocol is in docs/gateway.md.
 *
 *     surreal::Session session("127.0.0.1:7100");
 *     session.episodes([&](std::int64_t seed) {
 *       std::int64_t action = session.reset(game.begin(seed)).integer();
 *       for (;;) {
 *         game.step(action);
 *         if (game.over()) return session.end(game.reward());
 *         action = session.step(game.reward(), game.observation()).integer();
 *       }
 *     });
 */
#pragma once

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <fcntl.h>
#include <iostream>
#include <limits>
#include <map>
#include <optional>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

namespace surreal {

constexpr int kProtocol = 1;
constexpr double kFirstDelay = 0.5, kLastDelay = 10.0;
// The gateway sends a sign of life every 5 s while it owes an answer.
constexpr double kSilentSeconds = 20.0, kConnectSeconds = 5.0;
constexpr std::size_t kReportSteps = 100, kLargestBytes = 64u << 20;
constexpr int kDeepest = 16;

/** Base of the errors of this client. */
struct ClientError : std::runtime_error {
  using std::runtime_error::runtime_error;
};
/** The run is over, or this session has ended for good; the text is the reason. */
struct Finished : ClientError {
  using ClientError::ClientError;
};
/** The gateway could not be reached, or did not answer, for `patience_seconds`. */
struct Unavailable : ClientError {
  using ClientError::ClientError;
};
/** The address is not host:port. */
struct InvalidAddress : ClientError {
  using ClientError::ClientError;
};
/** The gateway refuses a message; `code` is from the table of errors in the protocol. */
struct Refused : ClientError {
  Refused(const std::string& which, const std::string& text)
      : ClientError(which + ": " + text), code(which) {}
  std::string code;
};

// -- values and msgpack

enum class Dtype : std::uint8_t {
  float32 = 1, uint8, int8, int16, int32, int64, uint16, uint32, boolean, float64
};

/** Returns the name of a dtype as in the protocol. */
inline const char* name_of(Dtype dtype) {
  static const char* const names[] = {"float32", "uint8", "int8", "int16", "int32",
                                      "int64", "uint16", "uint32", "bool", "float64"};
  return names[static_cast<std::size_t>(dtype) - 1];
}

/** Returns the bytes of one number of a dtype. */
inline std::size_t width_of(Dtype dtype) {
  static const std::size_t widths[] = {4, 1, 1, 2, 4, 8, 2, 4, 1, 8};
  return widths[static_cast<std::size_t>(dtype) - 1];
}

template <class T>
constexpr Dtype dtype_of() {
  static_assert(std::is_arithmetic_v<T>, "arrays have numbers");
  if constexpr (std::is_same_v<T, bool>) return Dtype::boolean;
  else if constexpr (std::is_floating_point_v<T>)
    return sizeof(T) == 4 ? Dtype::float32 : Dtype::float64;
  else if constexpr (sizeof(T) == 8) return Dtype::int64;
  else if constexpr (std::is_signed_v<T>)
    return sizeof(T) == 1 ? Dtype::int8 : sizeof(T) == 2 ? Dtype::int16 : Dtype::int32;
  else return sizeof(T) == 1 ? Dtype::uint8 : sizeof(T) == 2 ? Dtype::uint16 : Dtype::uint32;
}

/** An array: the bytes of its numbers in C order, little-endian as the machine. */
struct Array {
  Dtype dtype = Dtype::float32;
  std::vector<std::uint32_t> shape;
  std::vector<std::uint8_t> data;

  Array() = default;

  /** Copies numbers; their count is the product of the shape. */
  template <class T>
  Array(const T* numbers, std::vector<std::uint32_t> axes)
      : dtype(dtype_of<T>()), shape(std::move(axes)) {
    data.resize(size() * sizeof(T));
    if (!data.empty()) std::memcpy(data.data(), numbers, data.size());
  }

  /** Returns the count of numbers. */
  std::size_t size() const {
    std::size_t count = 1;
    for (const std::uint32_t axis : shape) count *= axis;
    return count;
  }

  /** Returns the numbers; throws ClientError if they have another type. */
  template <class T>
  std::vector<T> as() const {
    if (dtype != dtype_of<T>()) throw ClientError(std::string("the array is of ") + name_of(dtype));
    std::vector<T> numbers(data.size() / sizeof(T));
    if (!data.empty()) std::memcpy(numbers.data(), data.data(), data.size());
    return numbers;
  }
};

struct Value;
using List = std::vector<Value>;
using Map = std::map<std::string, Value>;
using Bytes = std::vector<std::uint8_t>;

/** A value of a message; vectors and std::arrays of numbers become arrays with one axis. */
struct Value {
  std::variant<std::nullptr_t, bool, std::int64_t, std::uint64_t, double, std::string, Bytes, Array,
               List, Map>
      held = nullptr;

  Value() = default;
  Value(std::nullptr_t) {}
  Value(const char* text) : held(std::string(text)) {}
  Value(std::string text) : held(std::move(text)) {}
  Value(Array array) : held(std::move(array)) {}
  Value(List list) : held(std::move(list)) {}
  Value(Map map) : held(std::move(map)) {}
  static Value bytes(Bytes raw) {
    Value value;
    value.held = std::move(raw);
    return value;
  }

  template <class T, class = std::enable_if_t<std::is_arithmetic_v<T>>>
  Value(T number) {
    if constexpr (std::is_same_v<T, bool>) held = number;
    else if constexpr (std::is_floating_point_v<T>) held = static_cast<double>(number);
    else if constexpr (std::is_signed_v<T>) held = static_cast<std::int64_t>(number);
    else held = static_cast<std::uint64_t>(number);
  }
  template <class T, class = std::enable_if_t<std::is_arithmetic_v<T> && !std::is_same_v<T, bool>>>
  Value(const std::vector<T>& numbers)
      : held(Array(numbers.data(), {static_cast<std::uint32_t>(numbers.size())})) {}
  template <class T, std::size_t N>
  Value(const std::array<T, N>& numbers)
      : held(Array(numbers.data(), {static_cast<std::uint32_t>(N)})) {}

  template <class T>
  const T* get() const { return std::get_if<T>(&held); }

  /** Returns a whole number; throws ClientError if it is none. */
  std::int64_t integer() const {
    if (const auto* whole = get<std::int64_t>()) return *whole;
    if (const auto* large = get<std::uint64_t>())
      if (*large <= static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()))
        return static_cast<std::int64_t>(*large);
    throw ClientError("a value is no whole number");
  }

  /** Returns a number; throws ClientError if it is none. */
  double number() const {
    if (const auto* real = get<double>()) return *real;
    if (const auto* large = get<std::uint64_t>()) return static_cast<double>(*large);
    return static_cast<double>(integer());
  }

  /** Returns an array; throws ClientError if it is none. */
  const Array& array() const {
    if (const auto* found = get<Array>()) return *found;
    throw ClientError("a value is no array");
  }

  /** Returns a text; empty if it is none. */
  std::string text() const {
    const auto* found = get<std::string>();
    return found ? *found : std::string();
  }

  bool truth() const {
    const auto* found = get<bool>();
    return found && *found;
  }

  /** Returns an entry of a map; nil if there is none. */
  const Value& operator[](const std::string& key) const {
    static const Value nil;
    const auto* map = get<Map>();
    if (!map) return nil;
    const auto found = map->find(key);
    return found == map->end() ? nil : found->second;
  }
};

/** Writes msgpack. */
class Writer {
 public:
  Bytes out;

  void value(const Value& value) {
    std::visit([this](const auto& each) { write(each); }, value.held);
  }

 private:
  void byte(std::size_t value) { out.push_back(static_cast<std::uint8_t>(value & 0xff)); }

  void big_endian(std::uint64_t value, int width) {
    for (int shift = 8 * (width - 1); shift >= 0; shift -= 8) byte((value >> shift) & 0xff);
  }

  /** Writes the head of a value of a variable size; a code of 0 does not exist. */
  void head(std::size_t size, std::size_t fix, std::size_t fixed_sizes,
            std::array<std::size_t, 3> codes) {
    if (size < fixed_sizes) return byte(fix | size);
    if (size > 0xffffffff) throw ClientError("a value is too large");
    const std::size_t width = codes[0] && size < 0x100 ? 0 : size < 0x10000 ? 1 : 2;
    byte(codes[width]);
    big_endian(size, 1 << width);
  }

  void write(std::nullptr_t) { byte(0xc0); }
  void write(bool value) { byte(value ? 0xc3 : 0xc2); }
  void write(std::int64_t value) {
    if (value >= -32 && value < 128) return byte(static_cast<std::size_t>(value));
    byte(value < 0 ? 0xd3 : 0xcf);
    big_endian(static_cast<std::uint64_t>(value), 8);
  }
  void write(std::uint64_t value) {
    if (value < 128) return byte(value);
    byte(0xcf);
    big_endian(value, 8);
  }
  void write(double value) {
    std::uint64_t bits = 0;
    std::memcpy(&bits, &value, 8);
    byte(0xcb);
    big_endian(bits, 8);
  }
  void write(const std::string& text) {
    head(text.size(), 0xa0, 32, {0xd9, 0xda, 0xdb});
    out.insert(out.end(), text.begin(), text.end());
  }
  void write(const Bytes& raw) {
    head(raw.size(), 0, 0, {0xc4, 0xc5, 0xc6});
    out.insert(out.end(), raw.begin(), raw.end());
  }
  void write(const Array& array) {
    head(2 + 4 * array.shape.size() + array.data.size(), 0, 0, {0xc7, 0xc8, 0xc9});
    byte(1);
    byte(static_cast<std::size_t>(array.dtype));
    byte(array.shape.size());
    for (const std::uint32_t axis : array.shape)
      for (int shift = 0; shift < 32; shift += 8) byte((axis >> shift) & 0xff);
    out.insert(out.end(), array.data.begin(), array.data.end());
  }
  void write(const List& list) {
    head(list.size(), 0x90, 16, {0, 0xdc, 0xdd});
    for (const Value& each : list) value(each);
  }
  void write(const Map& map) {
    head(map.size(), 0x80, 16, {0, 0xde, 0xdf});
    for (const auto& [key, each] : map) {
      write(key);
      value(each);
    }
  }
};

/** Returns a value in msgpack. */
inline Bytes pack(const Value& value) {
  Writer writer;
  writer.value(value);
  return std::move(writer.out);
}

/** Reads msgpack that may be wrong in every way. */
class Reader {
 public:
  Reader(const std::uint8_t* data, std::size_t size) : at_(data), left_(size) {}

  bool over() const { return left_ == 0; }

  Value value(int depth) {
    if (depth > kDeepest) throw ClientError("values are nested too deeply");
    const std::size_t code = *take(1);
    if (code < 0x80) return static_cast<std::int64_t>(code);
    if (code >= 0xe0) return static_cast<std::int64_t>(code) - 256;
    if (code < 0x90) return map(code & 15, depth);
    if (code < 0xa0) return list(code & 15, depth);
    if (code < 0xc0) return text(code & 31);
    switch (code) {
      case 0xc0: return nullptr;
      case 0xc2: return false;
      case 0xc3: return true;
      case 0xc4: case 0xc5: case 0xc6: return bytes(size(1 << (code - 0xc4)));
      case 0xc7: case 0xc8: case 0xc9: return array(size(1 << (code - 0xc7)));
      case 0xca: return real<float, std::uint32_t>();
      case 0xcb: return real<double, std::uint64_t>();
      case 0xcc: case 0xcd: case 0xce: return static_cast<std::int64_t>(number(1 << (code - 0xcc)));
      case 0xcf: return large(number(8));
      case 0xd0: return static_cast<std::int64_t>(static_cast<std::int8_t>(number(1)));
      case 0xd1: return static_cast<std::int64_t>(static_cast<std::int16_t>(number(2)));
      case 0xd2: return static_cast<std::int64_t>(static_cast<std::int32_t>(number(4)));
      case 0xd3: return static_cast<std::int64_t>(number(8));
      case 0xd4: case 0xd5: case 0xd6: case 0xd7: case 0xd8:
        return array(std::size_t{1} << (code - 0xd4));
      case 0xd9: case 0xda: case 0xdb: return text(size(1 << (code - 0xd9)));
      case 0xdc: case 0xdd: return list(size(2 << (code - 0xdc)), depth);
      case 0xde: case 0xdf: return map(size(2 << (code - 0xde)), depth);
      default: throw ClientError("the byte " + std::to_string(code) + " begins no value");
    }
  }

 private:
  const std::uint8_t* take(std::size_t count) {
    if (count > left_) throw ClientError("the payload is cut off");
    const std::uint8_t* found = at_;
    at_ += count;
    left_ -= count;
    return found;
  }

  std::uint64_t number(int width) {
    const std::uint8_t* raw = take(static_cast<std::size_t>(width));
    std::uint64_t found = 0;
    for (int index = 0; index < width; ++index) found = (found << 8) | raw[index];
    return found;
  }

  std::size_t size(int width) { return static_cast<std::size_t>(number(width)); }

  static Value large(std::uint64_t found) {
    if (found <= static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()))
      return static_cast<std::int64_t>(found);
    return found;
  }

  template <class Real, class Whole>
  Value real() {
    const Whole bits = static_cast<Whole>(number(sizeof(Real)));
    Real found = 0;
    std::memcpy(&found, &bits, sizeof(Real));
    return found;
  }

  Value text(std::size_t size) {
    const std::uint8_t* raw = take(size);
    return std::string(raw, raw + size);
  }

  Value bytes(std::size_t size) {
    const std::uint8_t* raw = take(size);
    return Value::bytes(Bytes(raw, raw + size));
  }

  Value array(std::size_t size) {
    const std::size_t type = *take(1);
    const std::uint8_t* raw = take(size);
    if (type != 1 || size < 2 || raw[0] < 1 || raw[0] > 10)
      throw ClientError("an extension that is no array");
    Array found;
    found.dtype = static_cast<Dtype>(raw[0]);
    const std::size_t axes = raw[1], first = 2 + 4 * axes;
    if (first > size) throw ClientError("an array with too few bytes");
    const std::size_t count = (size - first) / width_of(found.dtype);
    std::size_t product = 1;
    bool empty = false;
    for (std::size_t axis = 0; axis < axes; ++axis) {
      std::uint32_t length = 0;
      for (std::size_t index = 4; index > 0; --index)
        length = (length << 8) | raw[2 + 4 * axis + index - 1];
      found.shape.push_back(length);
      empty = empty || length == 0;
      // A product above the count stays there, so that it cannot overflow.
      if (length && product <= count) product *= length;
    }
    if (empty) product = 0;
    if (product != count || count * width_of(found.dtype) != size - first)
      throw ClientError("an array with too many or too few bytes");
    found.data.assign(raw + first, raw + size);
    return found;
  }

  Value list(std::size_t size, int depth) {
    List found;
    for (std::size_t index = 0; index < size; ++index) found.push_back(value(depth + 1));
    return found;
  }

  Value map(std::size_t size, int depth) {
    Map found;
    for (std::size_t index = 0; index < size; ++index) {
      const Value key = value(depth + 1);
      const auto* name = key.get<std::string>();
      if (!name) throw ClientError("a key that is no text");
      found[*name] = value(depth + 1);
    }
    return found;
  }

  const std::uint8_t* at_;
  std::size_t left_;
};

/** Returns the value in a payload; throws ClientError if it is not valid, or more than one. */
inline Value unpack(const std::uint8_t* data, std::size_t size) {
  Reader reader(data, size);
  Value value = reader.value(0);
  if (!reader.over()) throw ClientError("bytes after the end of the value");
  return value;
}

// -- the connection

/** The connection is gone. */
struct Lost : std::runtime_error {
  using std::runtime_error::runtime_error;
};

inline double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/** Binary frames on a TCP connection. */
class Connection {
 public:
  Connection(const std::string& host, const std::string& port) {
    addrinfo hints{}, *found = nullptr;
    hints.ai_socktype = SOCK_STREAM;
    if (const int error = getaddrinfo(host.c_str(), port.c_str(), &hints, &found))
      throw Lost(gai_strerror(error));
    std::string reason = "no address";
    const double deadline = now() + kConnectSeconds;
    for (const addrinfo* each = found; each && socket_ < 0; each = each->ai_next)
      dial(*each, deadline, reason);
    freeaddrinfo(found);
    if (socket_ < 0) throw Lost(reason);
  }
  ~Connection() { hang_up(); }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  void send(const Value& fields) {
    const Bytes payload = pack(fields);
    Bytes frame;
    for (int shift = 0; shift < 32; shift += 8)
      frame.push_back(static_cast<std::uint8_t>((payload.size() >> shift) & 0xff));
    frame.insert(frame.end(), payload.begin(), payload.end());
    const double deadline = now() + kSilentSeconds;
    for (std::size_t sent = 0; sent < frame.size();) {
      const ssize_t count = ::send(socket_, frame.data() + sent, frame.size() - sent, kNoSignal);
      if (count > 0) sent += static_cast<std::size_t>(count);
      // What the gateway has sent before it closed is read first.
      else if (!again() || !ready(POLLOUT, deadline)) return;
    }
  }

  /** Returns the next message; throws Lost, or Refused for what is none. */
  Value receive(double seconds) {
    const double deadline = now() + seconds;
    fill(4, deadline);
    std::size_t length = 0;
    for (std::size_t index = 4; index > 0; --index) length = (length << 8) | held_[index - 1];
    if (length > kLargestBytes)
      throw Refused("malformed", "the gateway announces " + std::to_string(length) + " bytes");
    fill(4 + length, deadline);
    Value fields;
    try {
      fields = unpack(held_.data() + 4, length);
    } catch (const ClientError& error) {
      throw Refused("malformed", std::string("the gateway has sent no message: ") + error.what());
    }
    held_.erase(held_.begin(), held_.begin() + static_cast<std::ptrdiff_t>(4 + length));
    if (fields["kind"].text().empty()) throw Refused("malformed", "the gateway sends no kind");
    return fields;
  }

 private:
#ifdef MSG_NOSIGNAL
  static constexpr int kNoSignal = MSG_NOSIGNAL;
#else
  static constexpr int kNoSignal = 0;
#endif

  static bool again() { return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR; }

  void hang_up() {
    if (socket_ >= 0) ::close(socket_);
    socket_ = -1;
  }

  void dial(const addrinfo& where, double deadline, std::string& reason) {
    socket_ = ::socket(where.ai_family, where.ai_socktype, where.ai_protocol);
    if (socket_ < 0) return;
    const int one = 1;
    setsockopt(socket_, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
#ifdef SO_NOSIGPIPE
    setsockopt(socket_, SOL_SOCKET, SO_NOSIGPIPE, &one, sizeof one);
#endif
    fcntl(socket_, F_SETFL, fcntl(socket_, F_GETFL) | O_NONBLOCK);
    fcntl(socket_, F_SETFD, FD_CLOEXEC);
    if (::connect(socket_, where.ai_addr, where.ai_addrlen) == 0) return;
    int error = errno;
    if (error == EINPROGRESS) {
      socklen_t size = sizeof error;
      error = ETIMEDOUT;
      if (ready(POLLOUT, deadline)) getsockopt(socket_, SOL_SOCKET, SO_ERROR, &error, &size);
    }
    if (error == 0) return;
    reason = std::strerror(error);
    hang_up();
  }

  /** Waits for the socket; returns false at the deadline. */
  bool ready(short event, double deadline) {
    for (;;) {
      const double left = deadline - now();
      if (left <= 0) return false;
      pollfd asked{socket_, event, 0};
      const int count = ::poll(&asked, 1, static_cast<int>(std::ceil(1000 * left)));
      if (count > 0) return true;
      if (count < 0 && errno != EINTR) return false;
    }
  }

  /** Receives until so many bytes are held. */
  void fill(std::size_t wanted, double deadline) {
    while (held_.size() < wanted) {
      std::array<std::uint8_t, 1 << 16> part;
      const ssize_t count = ::recv(socket_, part.data(), part.size(), 0);
      if (count > 0) held_.insert(held_.end(), part.begin(), part.begin() + count);
      else if (count == 0) throw Lost("the gateway has closed the connection");
      else if (!again()) throw Lost(std::strerror(errno));
      else if (!ready(POLLIN, deadline)) throw Lost("no answer");
    }
  }

  int socket_ = -1;
  Bytes held_;
};

// -- the session

/** Options of a session; empty ones are left to the gateway. */
struct Options {
  std::string token = "";  // given by the owner of the run
  std::string mode = "";   // train, act or evaluate
  std::string name = "";   // in the tables of the run
  int num_envs = 1;        // environments of one session
  double patience_seconds = 60.0;
  bool report_latency = true;
};

/** Optional fields of `step` and `end`. */
struct More {
  Value observation = nullptr;  // `end`: the last one; nil if the task itself has ended
  bool truncated = false;       // `end`: a time limit has ended the episode
  Value action = nullptr;       // what was done, if not what was advised
  std::map<std::string, double> metrics = {};
  Value terminations = nullptr, truncations = nullptr;  // `step` of several environments: lists
};

/** An episode that has ended: its return and its length in steps. */
struct Result {
  double total = 0.0;
  std::int64_t length = 0;
};

/** A session at a gateway; for one thread. */
class Session {
 public:
  /**
   * Connects; waits for the gateway up to `patience_seconds`.
   *
   * Throws Refused, Unavailable, Finished (the run is over), InvalidAddress.
   */
  explicit Session(const std::string& address, Options options = {})
      : options_(std::move(options)), address_(address) {
    const std::size_t colon = address.rfind(':');
    const bool named = colon != std::string::npos && colon > 0 && colon + 1 < address.size();
    host_ = named ? address.substr(0, colon) : "";
    port_ = named ? address.substr(colon + 1) : "";
    if (host_.size() > 2 && host_.front() == '[' && host_.back() == ']')
      host_ = host_.substr(1, host_.size() - 2);
    const bool digits = port_.find_first_not_of("0123456789") == std::string::npos;
    const int port = named && digits && port_.size() <= 5 ? std::stoi(port_) : 0;
    if (port < 1 || port > 65535 || host_.find('/') != std::string::npos)
      throw InvalidAddress("the address is " + address +
                           ", expected host:port (without TLS), and a port from 1 to 65535");
    hello_ = {{"kind", "hello"}, {"v", kProtocol}, {"client", "surreal_client.hpp 1"}};
    const std::pair<const char*, const std::string&> texts[] = {
        {"token", options_.token}, {"mode", options_.mode}, {"name", options_.name}};
    for (const auto& [key, text] : texts)
      if (!text.empty()) hello_[key] = text;
    if (options_.num_envs != 1) hello_["num_envs"] = options_.num_envs;
    open(std::nullopt);
  }
  ~Session() {
    try {
      close();
    } catch (...) {  // a destructor reports no errors
    }
  }
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  /** Calls `play(seed)` for one episode after the other until the run is over; returns how many. */
  template <class Play>
  std::int64_t episodes(Play play) {
    std::int64_t played = 0;
    try {
      for (;; ++played) play(seed_);
    } catch (const Finished&) {
    }
    return played;
  }

  /** Begins an episode; returns the first action. */
  Value reset(const Value& observation) {
    total_ = 0.0;
    length_ = 0;
    return ask({{"kind", "reset"}, {"observation", observation}})["action"];
  }

  /** Reports the outcome of the last action; returns the next action. */
  Value step(const Value& reward, const Value& observation, const More& more = {}) {
    Map fields{{"kind", "step"}, {"reward", reward}, {"observation", observation}};
    if (!more.terminations.get<std::nullptr_t>()) {
      fields["terminated"] = more.terminations;
      fields["truncated"] = more.truncations;
    }
    return ask(with(std::move(fields), more))["action"];
  }

  /** Ends the episode with the outcome of the last action. */
  Result end(double reward, const More& more = {}) {
    Map fields{{"kind", "end"}, {"reward", reward}, {"truncated", more.truncated}};
    if (!more.observation.get<std::nullptr_t>()) fields["observation"] = more.observation;
    const Value answer = ask(with(std::move(fields), more));
    if (answer["seed"].get<std::int64_t>()) seed_ = answer["seed"].integer();
    return {answer["return"].number(), answer["length"].integer()};
  }

  /** Reports numbers as curves of their own. */
  void metrics(const std::map<std::string, double>& values) {
    Map named(values.begin(), values.end());
    if (connection_) connection_->send(Map{{"kind", "metrics"}, {"values", std::move(named)}});
  }

  /** Says goodbye and closes the connection. */
  void close() {
    if (!connection_) return;
    try {
      connection_->send(Map{{"kind", "bye"}});
      while (connection_->receive(kConnectSeconds)["kind"].text() != "goodbye") {
      }
    } catch (const Lost&) {
    } catch (const Refused&) {
    }
    connection_.reset();
  }

  const Value& observation_spec() const { return observation_spec_; }
  const Value& action_spec() const { return action_spec_; }
  /** Returns a seed for the next episode. */
  std::int64_t seed() const { return seed_; }
  /** Returns the version of the parameters behind the newest action. */
  std::int64_t version() const { return version_; }
  /** Returns the newest round trips [seconds]. */
  const std::vector<double>& latencies() const { return latencies_; }

 private:
  static Map with(Map fields, const More& more) {
    if (!more.action.get<std::nullptr_t>()) fields["action"] = more.action;
    if (!more.metrics.empty()) fields["metrics"] = Map(more.metrics.begin(), more.metrics.end());
    return fields;
  }

  /** Sends a request until it is answered, over as many connections as it takes. */
  Value ask(Map fields) {
    const double reward = fields.count("reward") && !fields["reward"].get<Array>() &&
                                  !fields["reward"].get<List>() ? fields["reward"].number() : 0.0;
    const bool counts = fields.count("reward") != 0;
    const double began = now();
    double alive = began;
    fields["seq"] = seq_ + 1;
    bool sent = false;
    for (;;) {
      try {
        if (!connection_) {
          open(alive);
          sent = false;
          if (!resumed_ && fields["kind"].text() == "end")
            // The episode was cut, and this was its end: there is nothing left to ask.
            return Map{{"return", total_ + reward}, {"length", length_ + 1}};
          // The episode was cut, too: it goes on as a new one from the present observation.
          if (!resumed_)
            fields = Map{{"kind", "reset"}, {"observation", fields["observation"]}, {"seq", 1}};
        }
        if (!sent) connection_->send(fields);
        sent = true;
        const Value answer = connection_->receive(kSilentSeconds);
        alive = now();
        if (!is_answer(answer, fields["seq"].integer())) continue;
        seq_ = fields["seq"].integer();
        if (answer["version"].get<std::int64_t>()) version_ = answer["version"].integer();
        total_ += reward;
        length_ += counts;
        measure(now() - began);
        return answer;
      } catch (const Lost& lost) {
        connection_.reset();
        if (now() - alive > options_.patience_seconds) throw Unavailable(lost.what());
      } catch (const Refused& refused) {
        if (refused.code == "malformed") connection_.reset();
        throw;
      }
    }
  }

  bool is_answer(const Value& answer, std::int64_t seq) {
    const std::string kind = answer["kind"].text();
    if (kind == "action" || kind == "episode")
      return answer["seq"].get<std::int64_t>() && answer["seq"].integer() == seq;
    if (kind == "error") {
      if (answer["fatal"].truth()) connection_.reset();
      if (answer["code"].text() == "unavailable") throw Unavailable(answer["message"].text());
      throw Refused(answer["code"].text(), answer["message"].text());
    }
    if (kind == "goodbye") {
      connection_.reset();
      if (!answer["reconnect"].truth()) throw Finished(answer["reason"].text());
      throw Lost(answer["reason"].text());
    }
    return false;
  }

  /** Connects until it succeeds; `alive` is the time of the last sign of life, if there was one. */
  void open(std::optional<double> alive) {
    const double deadline = alive.value_or(now()) + options_.patience_seconds;
    double delay = alive ? uniform(kFirstDelay) : 0.0, longest = kFirstDelay;
    for (;;) {
      std::this_thread::sleep_for(std::chrono::duration<double>(delay));
      double retry = 0.0;
      std::string reason = "the gateway is busy";
      try {
        const std::optional<double> seconds = greet();
        if (!seconds) return;
        retry = *seconds;
      } catch (const Lost& lost) {
        connection_.reset();
        reason = lost.what();
      }
      if (longest == kFirstDelay) {
        const double left = std::max(0.0, deadline - now());
        std::cerr << address_ << ": " << reason << "; trying again for " << std::lround(left)
                  << " s" << std::endl;
      }
      longest = std::min(kLastDelay, 1.5 * longest);
      delay = std::max(retry, uniform(longest));
      if (now() + delay > deadline) throw Unavailable(address_ + ": " + reason);
    }
  }

  /** Sends hello; returns nothing, or the seconds after which to try again. */
  std::optional<double> greet() {
    connection_.emplace(host_, port_);
    Map hello = hello_;
    if (!resume_.empty()) hello["resume"] = resume_;
    connection_->send(hello);
    Value answer;
    try {
      answer = connection_->receive(kConnectSeconds);
    } catch (const Refused&) {
      connection_.reset();
      throw;
    }
    const std::string kind = answer["kind"].text();
    if (kind == "welcome") {
      resumed_ = answer["resumed"].truth();
      resume_ = answer["resume"].text();
      if (!resumed_) seq_ = 0;
      observation_spec_ = answer["obs_spec"];
      action_spec_ = answer["action_spec"];
      seed_ = answer["seed"].get<std::int64_t>() ? answer["seed"].integer() : 0;
      return std::nullopt;
    }
    connection_.reset();
    if (kind == "error") throw Refused(answer["code"].text(), answer["message"].text());
    if (kind == "goodbye" && !answer["reconnect"].truth()) throw Finished(answer["reason"].text());
    const auto* seconds = answer["retry_after_seconds"].get<double>();
    return seconds && *seconds > 0 ? *seconds : 0.0;
  }

  double uniform(double most) { return std::uniform_real_distribution<double>(0.0, most)(random_); }

  void measure(double seconds) {
    ++steps_;
    latencies_.push_back(seconds);
    if (latencies_.size() > kReportSteps) latencies_.erase(latencies_.begin());
    if (!options_.report_latency || steps_ % kReportSteps) return;
    std::vector<double> ordered = latencies_;
    std::sort(ordered.begin(), ordered.end());
    metrics({{"latency_p50_seconds", ordered[kReportSteps / 2]},
             {"latency_p99_seconds", ordered[kReportSteps * 99 / 100]}});
  }

  Options options_;
  std::string address_, host_, port_, resume_;
  Map hello_;
  std::optional<Connection> connection_;
  bool resumed_ = false;
  std::int64_t seq_ = 0, seed_ = 0, version_ = 0, length_ = 0;
  std::uint64_t steps_ = 0;
  double total_ = 0.0;
  Value observation_spec_, action_spec_;
  std::vector<double> latencies_;
  std::mt19937_64 random_{std::random_device{}()};
};

}  // namespace surreal
