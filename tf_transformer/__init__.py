"""tf_transformer: the Transformer for TensorFlow and Keras.

Names are imported on first use, so that `import tf_transformer` and the command's `--help` return
immediately: importing TensorFlow takes seconds.
"""

import importlib

from tf_transformer.lazy import check_keras_backend, lazy_names, saved_names

__version__ = "0.2.0"

_HOMES = {
    "functional": (
        "AttentionPlan attention_plan additive_attention additive_mask bilinear_attention "
        "check_mask create_look_ahead_mask create_masks create_padding_mask "
        "create_sequence_to_sequence_mask multiplicative_attention scaled_dot_product_attention"
    ),
    "layers": (
        "AdditiveAttention AlibiPositions Architecture BatchNorm ComplexDense ComplexDropout "
        "ComplexEmbedding ComplexEncoder ComplexEncoderLayer ComplexFeedForward ComplexLayerNorm "
        "ComplexMultiHeadAttention ComplexToReal BilinearAttention Decoder DecoderLayer Dropout "
        "Encoder EncoderLayer FeedForward FlatDense GatedDense GatedFeedForward LayerNorm "
        "LearnedPositions MacaronFeedForward MultiHeadAttention NaiveBatchNorm "
        "MultiplicativeAttention NoPositions NoResidual Positional_Encoding PostNorm PreNorm "
        "RMSNorm RotaryPositions ShawPositions SinusoidalPositions T5Positions TokenEmbedding "
        "point_wise_feed_forward_network recompute_layers"
    ),
    "models": "LanguageModel PooledModel Transformer with_vocab_size",
    "models.hugging_face": (
        "TranslationTokenizer add_adapters generation_settings load load_adapters merge_adapters "
        "save_adapters save_pretrained"
    ),
    "generation": (
        "Ensemble beam_search continue_texts gather_rows generate greedy_decode repeat_rows "
        "sample_decode"
    ),
    "tokenizers": (
        "BPETokenizer ChatTemplate GraphBPE GraphSentencePieceBPE GraphSentencePieceUnigram "
        "GraphTokenizer GraphUnigram GraphWordPiece Tokenizer UnigramTokenizer WordPieceTokenizer "
        "read_sentencepiece"
    ),
    "data": "load_corpus mask_tokens read_documents split_pairs",
    "training": (
        "FusedAdam GlobalLossScale InverseSquareRootSchedule LayerwiseAdamW MaskedAccuracy "
        "Perplexity SmoothedCrossentropy TokenCrossentropy WarmUpLinearDecay count_compilations"
    ),
    "visualize": (
        "attention_svg complexity_figure explorer gradients_figure heads_figure importance_figure "
        "positions_figure training_curves translation_attention"
    ),
    "export": (
        "EarlyExitClassifier MaskFiller QuestionAnswerer TextClassifier TextEncoder TextGenerator "
        "TokenClassifier Translator compile_for freeze stablehlo stream_text warm_up_in_background"
    ),
}
# Classes without a name here that Keras saves by name.
_SAVED = {
    "layers": (
        "ComplexLayer FactorizedEmbedding Positions RowNorm ScoredAttention Stack TablePositions"
    ),
    "models": "BaseModel DecodingModel",
    "models.bert": (
        "_Attention Bert BertAttention BertClassificationHead "
        "BertEmbeddings BertEncoder BertForMaskedLM BertForNextSentencePrediction "
        "BertForPreTraining BertForQuestionAnswering BertForSequenceClassification "
        "BertForTokenClassification BertLayer BERTLayerNorm BertLMHead BERTSelfAttention "
        "BertWithDense BertWithExits BertWithHead ConfiguredLayer DrawnKernel "
        "ElectraForPreTraining PretrainedBert SentenceEncoder TwoTowers UniLM"
    ),
    "training": "RDrop _MeanOverLabels",
    "compression": "Distiller",
}
_WITHOUT_KERAS = ("data", "tokenizers")
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names.split()}

__all__ = ["__version__", *sorted(_HOME_OF)]
_find, _ = lazy_names(__name__, _HOME_OF)
saved_names(
    __name__,
    {name: home for name, home in _HOME_OF.items() if home in ("layers", "models", "training")}
    | {name: home for home, names in _SAVED.items() for name in names.split()},
)


def __getattr__(name):
    if name in ("architectures", "bert") or _HOME_OF.get(name, "data") not in _WITHOUT_KERAS:
        check_keras_backend()
    if name in ("architectures", "bert"):  # modules with their own names
        return importlib.import_module(f"tf_transformer.{name}")
    return _find(name)


def __dir__():
    return __all__
