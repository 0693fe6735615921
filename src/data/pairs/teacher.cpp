#include "data/pairs/teacher.h"

#include <fmt/format.h>

#include <cmath>
#include <set>
#include <string>

namespace millrace::data {
namespace {

constexpr int kWordWeight = 2;
constexpr int kPairWeight = 1;
constexpr std::uint64_t kPositions = 8;

std::vector<std::string> words_of(std::string_view text) {
    std::vector<std::string> words;
    std::string word;
    for (const char c : text) {
        const auto byte = static_cast<unsigned char>(c);
        if (byte >= 'A' && byte <= 'Z') {
            word += static_cast<char>(byte - 'A' + 'a');
        } else if ((byte >= 'a' && byte <= 'z') || (byte >= '0' && byte <= '9') || byte >= 128) {
            word += c;
        } else if (byte != '\'' && !word.empty()) {
            words.push_back(std::move(word));
            word.clear();
        }
    }
    if (!word.empty()) words.push_back(std::move(word));
    return words;
}

std::uint64_t hash_of(std::string_view feature) {
    std::uint64_t hash = 14695981039346656037u ^ 0x6d696c6c72616365u;
    for (const char c : feature) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211u;
    return hash;
}

std::uint64_t mix(std::uint64_t z) {
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

void add_feature(std::vector<std::int64_t>& sums, std::string_view feature, int weight) {
    const std::uint64_t hash = hash_of(feature);
    for (std::uint64_t j = 1; j <= kPositions; ++j) {
        const std::uint64_t z = mix(hash + j * 0x9e3779b97f4a7c15u);
        sums[((z >> 32) * sums.size()) >> 32] += (z & 1u) == 0 ? weight : -weight;
    }
}

}  // namespace

base::Result<std::vector<float>> teach(std::string_view text, std::uint32_t dimensions) {
    if (dimensions == 0 || dimensions > kMostDimensions)
        return base::Error{fmt::format("a vector of {} dimensions; 1 to {} would be right", dimensions, kMostDimensions)};
    const std::vector<std::string> words = words_of(text);
    if (words.empty()) return base::Error{"the text has no words: there is nothing to embed"};
    std::set<std::string> pairs;
    for (std::size_t i = 1; i < words.size(); ++i) pairs.insert(words[i - 1] + ' ' + words[i]);
    std::vector<std::int64_t> sums(dimensions, 0);
    for (const std::string& word : std::set(words.begin(), words.end())) add_feature(sums, word, kWordWeight);
    for (const std::string& pair : pairs) add_feature(sums, pair, kPairWeight);
    std::int64_t squares = 0;
    for (const std::int64_t sum : sums) squares += sum * sum;
    if (squares == 0)
        return base::Error{fmt::format("the features of the text cancel out in {} dimensions; more would be right", dimensions)};
    const double length = std::sqrt(static_cast<double>(squares));
    std::vector<float> vector(dimensions);
    for (std::size_t i = 0; i < vector.size(); ++i) vector[i] = static_cast<float>(static_cast<double>(sums[i]) / length);
    return vector;
}

}  // namespace millrace::data
