#include "tape/initial.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <thread>

#include "base/orthonormal.h"
#include "base/philox.h"

namespace millrace::tape {
namespace {

constexpr std::int64_t kPiece = 1 << 15;  // elements that a thread draws at a time, a multiple of four

/// FNV-1a: the random stream of a tensor follows from its name alone.
std::uint32_t stream_of(const std::string& name) {
    std::uint32_t hash = 2166136261u;
    for (unsigned char c : name) hash = (hash ^ c) * 16777619u;
    return hash;
}

/// Elements [begin, begin + out.size()) of one matrix, `begin` a multiple of four.
struct Piece {
    const Parameter* parameter;
    int group;
    std::int64_t begin;
    std::span<float> out;
};

/// `four` makes the values of four neighbouring elements of their random words.
template <class Four>
void draw_blocks(const Piece& piece, std::uint64_t seed, std::uint32_t stream, Four four) {
    for (std::size_t i = 0; i < piece.out.size(); i += 4) {
        const auto block = static_cast<std::uint32_t>((static_cast<std::uint64_t>(piece.begin) + i) / 4);
        const std::array<float, 4> values = four(base::random_block(seed, 0, 0, stream, block));
        std::copy_n(values.begin(), std::min<std::size_t>(4, piece.out.size() - i),
                    piece.out.begin() + static_cast<std::ptrdiff_t>(i));
    }
}

void draw(const Piece& piece, std::size_t member, std::uint64_t seed) {
    const Parameter& p = *piece.parameter;
    const std::uint32_t stream = stream_of(p.names[static_cast<std::size_t>(piece.group)]);
    const auto scale = static_cast<float>(p.init.scale);
    switch (p.init.kind) {
        case Init::Kind::constant: std::ranges::fill(piece.out, scale); break;
        case Init::Kind::normal:
            draw_blocks(piece, seed, stream, [scale](const base::Philox4& words) {
                const base::NormalPair a = base::normal_pair(words.v[0], words.v[1]),
                                       b = base::normal_pair(words.v[2], words.v[3]);
                return std::array{scale * a.first, scale * a.second, scale * b.first, scale * b.second};
            });
            break;
        case Init::Kind::uniform:
            draw_blocks(piece, seed, stream, [scale](const base::Philox4& words) {
                const auto value = [&](int i) { return scale * (2 * base::uniform01(words.v[i]) - 1); };
                return std::array{value(0), value(1), value(2), value(3)};
            });
            break;
        case Init::Kind::orthonormal: {
            const std::vector<float> values = base::random_orthonormal(p.rows, p.cols, seed, stream);
            std::ranges::transform(values, piece.out.begin(), [scale](float value) { return value * scale; });
            break;
        }
        case Init::Kind::blocks: {
            const std::vector<double>& parts =
                p.init.members.empty() ? p.init.values : p.init.members[std::min(member, p.init.members.size() - 1)];
            const auto all = static_cast<std::size_t>(p.rows) * static_cast<std::size_t>(p.cols);
            for (std::size_t i = 0; i < piece.out.size(); ++i)
                piece.out[i] = static_cast<float>(parts[(static_cast<std::size_t>(piece.begin) + i) * parts.size() / all]);
            break;
        }
    }
}

/// An orthonormal matrix is one piece: its columns depend on each other.
void add_pieces(const Parameter& p, int group, std::span<float> matrix, std::vector<Piece>& pieces) {
    const auto all = static_cast<std::int64_t>(matrix.size());
    const std::int64_t most = p.init.kind == Init::Kind::orthonormal ? std::max<std::int64_t>(all, 1) : kPiece;
    for (std::int64_t begin = 0; begin < all; begin += most)
        pieces.push_back(
            {&p, group, begin,
             matrix.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(std::min(most, all - begin)))});
}

}  // namespace

std::vector<float> draw_matrix(const Parameter& p, int group, std::size_t member, std::uint64_t seed) {
    std::vector<float> values(static_cast<std::size_t>(p.rows) * static_cast<std::size_t>(p.cols));
    draw({&p, group, 0, values}, member, seed);
    return values;
}

void draw_slice(const std::vector<Parameter>& parameters, bool fixed, std::size_t member, std::uint64_t seed,
                std::span<float> slice) {
    std::ranges::fill(slice, 0.0f);
    std::vector<Piece> pieces;
    for (const Parameter& p : parameters) {
        if (p.fixed != fixed) continue;
        const auto each = static_cast<std::size_t>(p.rows) * static_cast<std::size_t>(p.cols);
        for (int group = 0; group < p.groups; ++group)
            add_pieces(p, group, slice.subspan(static_cast<std::size_t>(p.offset) + static_cast<std::size_t>(group) * each, each),
                       pieces);
    }
    std::atomic<std::size_t> next{0};
    const auto work = [&] {
        for (std::size_t i = next++; i < pieces.size(); i = next++) draw(pieces[i], member, seed);
    };
    const std::size_t wanted = slice.size() / static_cast<std::size_t>(2 * kPiece),
                      threads = std::min<std::size_t>(wanted, std::max(1u, std::thread::hardware_concurrency()));
    std::vector<std::jthread> helpers;
    for (std::size_t i = 1; i < threads; ++i) helpers.emplace_back(work);
    work();
}

ops::GroupState initial_state(const Group& group) {
    return {.decay_factor = group.decay_factor, .trainable = group.fixed ? 0u : 1u};
}

void round_copies(Precision precision, std::span<const float> values, std::span<std::uint16_t> copies) {
    MILLRACE_ASSERT(has_copies(precision) && values.size() == copies.size(), "a 16-bit copy of each value");
    std::ranges::transform(values, copies.begin(), precision == Precision::bf16 ? tensor::to_bf16 : tensor::to_f16);
}

}  // namespace millrace::tape
