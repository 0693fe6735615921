#include "tape/initial.h"

#include <algorithm>
#include <array>

#include "base/orthonormal.h"
#include "base/philox.h"
#include "base/processors.h"
#include "ops/cpu/thread_pool.h"

namespace millrace::tape {
namespace {

constexpr std::int64_t kPiece = 1 << 13;  // elements that a thread draws at a time, a multiple of four

/// FNV-1a: the random stream of a tensor follows from its name alone.
std::uint32_t stream_of(const std::string& name) {
    std::uint32_t hash = 2166136261u;
    for (unsigned char c : name) hash = (hash ^ c) * 16777619u;
    return hash;
}

/// Elements [begin, begin + count) of one matrix, `begin` a multiple of four, and where they lie in the slice of a member.
struct Piece {
    const Parameter* parameter;
    int matrix;
    std::int64_t begin, at, count;

    /// In a part of the slice that begins with element `first`.
    [[nodiscard]] std::span<float> within(std::span<float> part, std::int64_t first) const {
        return part.subspan(static_cast<std::size_t>(at - first), static_cast<std::size_t>(count));
    }
};

/// `four` makes the values of four neighbouring elements of their random words.
template <class Four>
void draw_blocks(std::int64_t begin, std::span<float> to, std::uint64_t seed, std::uint32_t stream, Four four) {
    const auto values = [&](std::size_t i) {
        const auto block = static_cast<std::uint32_t>((static_cast<std::uint64_t>(begin) + i) / 4);
        return four(base::random_block(seed, 0, 0, stream, block));
    };
    float* out = to.data();
    std::size_t i = 0;
    for (; i + 4 <= to.size(); i += 4) {
        const std::array<float, 4> drawn = values(i);
        for (std::size_t j = 0; j < 4; ++j) out[i + j] = drawn[j];
    }
    if (i < to.size()) std::copy_n(values(i).begin(), to.size() - i, out + i);
}

void draw(const Piece& piece, std::span<float> out, std::size_t member, std::uint64_t seed) {
    const Parameter& p = *piece.parameter;
    const std::uint32_t stream = stream_of(p.names[static_cast<std::size_t>(piece.matrix)]);
    const auto scale = static_cast<float>(p.init.scale);
    switch (p.init.kind) {
        case Init::Kind::constant: std::ranges::fill(out, scale); break;
        case Init::Kind::normal:
            draw_blocks(piece.begin, out, seed, stream, [scale](const base::Philox4& words) {
                const base::NormalPair a = base::normal_pair(words.v[0], words.v[1]),
                                       b = base::normal_pair(words.v[2], words.v[3]);
                return std::array{scale * a.first, scale * a.second, scale * b.first, scale * b.second};
            });
            break;
        case Init::Kind::uniform:
            draw_blocks(piece.begin, out, seed, stream, [scale](const base::Philox4& words) {
                const auto value = [&](int i) { return scale * (2 * base::uniform01(words.v[i]) - 1); };
                return std::array{value(0), value(1), value(2), value(3)};
            });
            break;
        case Init::Kind::orthonormal: {
            const std::vector<float> values = base::random_orthonormal(p.rows, p.cols, seed, stream);
            std::ranges::transform(values, out.begin(), [scale](float value) { return value * scale; });
            break;
        }
        case Init::Kind::blocks: {
            const std::vector<double>& parts =
                p.init.members.empty() ? p.init.values : p.init.members[std::min(member, p.init.members.size() - 1)];
            const auto all = static_cast<std::size_t>(p.rows) * static_cast<std::size_t>(p.cols);
            for (std::size_t i = 0; i < out.size(); ++i)
                out[i] = static_cast<float>(parts[(static_cast<std::size_t>(piece.begin) + i) * parts.size() / all]);
            break;
        }
    }
}

/// In the order of the slice. An orthonormal matrix is one piece: its columns depend on each other.
std::vector<Piece> pieces_of(const std::vector<Parameter>& parameters, bool fixed) {
    std::vector<Piece> pieces;
    for (const Parameter& p : parameters) {
        if (p.fixed != fixed) continue;
        const std::int64_t each = std::int64_t{p.rows} * p.cols;
        const std::int64_t most = p.init.kind == Init::Kind::orthonormal ? std::max<std::int64_t>(each, 1) : kPiece;
        for (int matrix = 0; matrix < p.matrices; ++matrix)
            for (std::int64_t begin = 0; begin < each; begin += most)
                pieces.push_back({&p, matrix, begin, p.offset + matrix * each + begin, std::min(most, each - begin)});
    }
    return pieces;
}

int useful_threads(std::int64_t elements, unsigned threads) {
    if (threads == 0) threads = static_cast<unsigned>(base::usable_processors());
    return static_cast<int>(std::clamp<std::int64_t>(elements / (4 * kPiece), 1, threads));
}

}  // namespace

std::vector<float> draw_matrix(const Parameter& p, int matrix, std::size_t member, std::uint64_t seed) {
    std::vector<float> values(static_cast<std::size_t>(p.rows) * static_cast<std::size_t>(p.cols));
    draw({&p, matrix, 0, 0, std::ssize(values)}, values, member, seed);
    return values;
}

void Copies::round(std::span<const float> from, std::size_t at) const {
    std::ranges::transform(from, values.begin() + static_cast<std::ptrdiff_t>(at),
                           precision == Precision::bf16 ? tensor::to_bf16 : tensor::to_f16);
}

void draw_slice(const std::vector<Parameter>& parameters, bool fixed, std::size_t member, std::uint64_t seed,
                std::span<float> slice, const Copies& copies, unsigned threads) {
    MILLRACE_ASSERT(copies.values.empty() || copies.values.size() == slice.size(), "a copy of each value");
    std::ranges::fill(slice, 0.0f);
    std::ranges::fill(copies.values, std::uint16_t{0});
    const std::vector<Piece> pieces = pieces_of(parameters, fixed);
    ops::cpu::ThreadPool pool(useful_threads(static_cast<std::int64_t>(slice.size()), threads));
    pool.for_each(static_cast<int>(pieces.size()), [&](int task, int) {
        const Piece& piece = pieces[static_cast<std::size_t>(task)];
        const std::span<float> out = piece.within(slice, 0);
        draw(piece, out, member, seed);
        if (!copies.values.empty()) copies.round(out, static_cast<std::size_t>(piece.at));
    });
}

void draw_parts(const std::vector<Parameter>& parameters, bool fixed, std::size_t member, std::uint64_t seed, std::int64_t width,
                const std::function<void(std::int64_t begin, std::vector<float>& part)>& write) {
    const std::vector<Piece> pieces = pieces_of(parameters, fixed);
    ops::cpu::ThreadPool pool(useful_threads(std::min(width, kDrawnPart), 0));
    std::vector<float> part;
    for (std::size_t first = 0, last = 0; first < pieces.size(); first = last) {
        const std::int64_t begin = first == 0 ? 0 : pieces[first].at;
        const auto ends = [&](const Piece& piece) { return piece.at + piece.count; };
        for (last = first + 1; last < pieces.size() && ends(pieces[last]) - begin <= kDrawnPart;) ++last;
        part.assign(static_cast<std::size_t>((last < pieces.size() ? pieces[last].at : width) - begin), 0.0f);
        pool.for_each(static_cast<int>(last - first), [&](int task, int) {
            const Piece& piece = pieces[first + static_cast<std::size_t>(task)];
            draw(piece, piece.within(part, begin), member, seed);
        });
        write(begin, part);
    }
}

ops::GroupState initial_state(const ParameterGroup& group) {
    return {.decay_factor = group.decay_factor, .trainable = group.fixed ? 0u : 1u};
}

}  // namespace millrace::tape
