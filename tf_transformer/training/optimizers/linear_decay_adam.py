"""The optimizer of pretraining: Adam with weight decay, warm-up and linear decay."""

from tf_transformer.training.optimizers.fused_adam import FusedAdam
from tf_transformer.training.optimizers.warm_up_linear_decay import WarmUpLinearDecay


def linear_decay_adam(
    variables, *, peak_learning_rate, warmup_share, total_steps, weight_decay, epsilon
):
    """Return a built `FusedAdam` as BERT and GPT-2 are trained with it.

    The learning rate is that of `WarmUpLinearDecay`; beta_2 is 0.999, gradients are clipped to a
    global norm of 1, and weights decay except biases and normalization: Devlin et al. 2019,
    appendix A.2.
    """
    schedule = WarmUpLinearDecay(peak_learning_rate, int(warmup_share * total_steps), total_steps)
    optimizer = FusedAdam(
        schedule,
        beta_1=0.9,
        beta_2=0.999,
        epsilon=epsilon,
        weight_decay=weight_decay,
        global_clipnorm=1.0,
    )
    optimizer.exclude_from_weight_decay(var_names=["bias", "gamma", "beta"])
    optimizer.build(variables)
    return optimizer
