#include "model.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <stdexcept>
#include <utility>

namespace freehold {

RopeTable::RopeTable(std::vector<float> inv_freq, double attention_factor)
    : inv_freq_(std::move(inv_freq)), attention_factor_(attention_factor) {}

void RopeTable::extend(int end) {
    const std::size_t half = inv_freq_.size();
    while (static_cast<int>(blocks_.size()) * kBlock < end) {
        const int first = static_cast<int>(blocks_.size()) * kBlock;
        auto block = std::make_unique<float[]>(kBlock * 2 * half);
        for (int i = 0; i < kBlock; ++i) {
            float* row = block.get() + static_cast<std::size_t>(i) * 2 * half;
            for (std::size_t pair = 0; pair < half; ++pair) {
                // The angle is rounded to float32, as models are trained with.
                const double angle = static_cast<float>(first + i) * inv_freq_[pair];
                row[pair] = static_cast<float>(std::cos(angle) * attention_factor_);
                row[half + pair] = static_cast<float>(std::sin(angle) * attention_factor_);
            }
        }
        blocks_.push_back(std::move(block));
    }
}

namespace {

template <class Place>
struct Named {
    const char* slot;
    Place Layer::* in_layer;
};

constexpr Named<Matrix> kLayerMatrices[] = {
    {"q", &Layer::q},       {"k", &Layer::k},   {"v", &Layer::v},       {"o", &Layer::o},
    {"gate", &Layer::gate}, {"up", &Layer::up}, {"down", &Layer::down},
};
constexpr Named<std::vector<float>> kLayerVectors[] = {
    {"attn_norm", &Layer::attn_norm}, {"mlp_norm", &Layer::mlp_norm}, {"q_bias", &Layer::q_bias},
    {"k_bias", &Layer::k_bias},       {"v_bias", &Layer::v_bias},     {"q_norm", &Layer::q_norm},
    {"k_norm", &Layer::k_norm},
};

template <class Place, std::size_t N>
Place& layer_place(const Named<Place> (&names)[N], std::vector<Layer>& layers, const std::string& slot, int layer) {
    if (layer < 0 || layer >= static_cast<int>(layers.size())) {
        throw std::invalid_argument("slot '" + slot + "' of layer " + std::to_string(layer) + " doesn't exist");
    }
    for (const Named<Place>& named : names) {
        if (slot == named.slot) return layers[static_cast<std::size_t>(layer)].*named.in_layer;
    }
    throw std::invalid_argument("slot '" + slot + "' is not known");
}

void expect_shape(const Matrix& matrix, int outputs, int inputs, const char* slot) {
    if (matrix.data == nullptr || matrix.num_outputs != outputs || matrix.num_inputs != inputs) {
        throw std::invalid_argument(std::string("matrix '") + slot + "' is missing or misshapen");
    }
}

void expect_size(const std::vector<float>& vector, int size, const char* slot) {
    if (static_cast<int>(vector.size()) != size) {
        throw std::invalid_argument(std::string("vector '") + slot + "' is missing or misshapen");
    }
}

void check_layer(const Layer& layer, int hidden, std::size_t num_ropes) {
    const AttentionShape& a = layer.attention;
    const int padded_hidden = round_up(hidden, kStrip);
    if (a.num_kv_heads <= 0 || a.num_heads % a.num_kv_heads != 0 || a.rope < 0 ||
        a.rope >= static_cast<int>(num_ropes)) {
        throw std::invalid_argument("attention heads or rotary table of a layer are malformed");
    }
    expect_shape(layer.q, a.query_size(), hidden, "q");
    expect_shape(layer.k, a.kv_size(), hidden, "k");
    expect_shape(layer.v, a.kv_size(), hidden, "v");
    expect_shape(layer.o, hidden, a.query_size(), "o");
    expect_shape(layer.gate, layer.mlp_size, hidden, "gate");
    expect_shape(layer.up, layer.mlp_size, hidden, "up");
    expect_shape(layer.down, hidden, layer.mlp_size, "down");
    expect_size(layer.attn_norm, padded_hidden, "attn_norm");
    expect_size(layer.mlp_norm, padded_hidden, "mlp_norm");
    expect_size(layer.q_norm, a.qk_norm ? a.head_dim : 0, "q_norm");
    expect_size(layer.k_norm, a.qk_norm ? a.head_dim : 0, "k_norm");
    expect_size(layer.q_bias, a.qkv_bias ? a.query_size() : 0, "q_bias");
    expect_size(layer.k_bias, a.qkv_bias ? a.kv_size() : 0, "k_bias");
    expect_size(layer.v_bias, a.qkv_bias ? a.kv_size() : 0, "v_bias");
}

}  // namespace

Matrix& Model::matrix(const std::string& slot, int layer) {
    if (slot == "embed") return embed;
    if (slot == "head") return head;
    return layer_place(kLayerMatrices, layers, slot, layer);
}

std::vector<float>& Model::vector(const std::string& slot, int layer) {
    if (slot == "final_norm") return final_norm;
    return layer_place(kLayerVectors, layers, slot, layer);
}

bool Model::has_integer_scales() const {
    const auto has = [](const Matrix& matrix) { return layout_of(matrix.layout).integer_scales(); };
    return has(output()) || std::any_of(layers.begin(), layers.end(), [&](const Layer& layer) {
               return std::any_of(std::begin(kLayerMatrices), std::end(kLayerMatrices),
                                  [&](const Named<Matrix>& named) { return has(layer.*named.in_layer); });
           });
}

void Model::check() const {
    expect_shape(embed, vocab_size, hidden_size, "embed");
    if (!tied_embeddings) expect_shape(head, vocab_size, hidden_size, "head");
    expect_size(final_norm, padded_hidden(), "final_norm");
    for (const RopeTable& rope : ropes) {
        for (const Layer& layer : layers) {
            if (2 * rope.num_pairs() > layer.attention.head_dim) {
                throw std::invalid_argument("a rotary table turns more elements than a head has");
            }
        }
    }
    for (const Layer& layer : layers) check_layer(layer, hidden_size, ropes.size());
}

}  // namespace freehold
