// Plays CartPole for a gateway until the run is over:
//     g++ -std=c++17 -O2 cartpole.cpp -o cartpole && ./cartpole 127.0.0.1:7100
#include <iostream>

#include "cartpole.hpp"

int main(int count, char** words) {
  try {
    surreal::Session session(count > 1 ? words[1] : "127.0.0.1:7100");
    const auto play = [&](std::int64_t seed) { play_episode(session, CartPole(seed)); };
    std::cout << session.episodes(play) << " episodes played\n";
  } catch (const surreal::ClientError& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
}
