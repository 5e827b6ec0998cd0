"""Any registered Gymnasium environment: train it, load the policy, act.

python cartpole.py               or, without Python:  lockstep train gym --env-id CartPole-v1
"""

import gymnasium

import lockstep


def main(**settings):
    """Train CartPole, then play one episode; returns the run and the episode's return."""
    run = lockstep.train(lambda: gymnasium.make("CartPole-v1"), algorithm="ppo", **settings)
    policy = lockstep.load(run)
    env = gymnasium.make("CartPole-v1")
    observation, _ = env.reset(seed=1)
    score, over = 0.0, False
    while not over:
        observation, reward, terminated, truncated, _ = env.step(policy.act(observation))
        score, over = score + reward, terminated or truncated
    return run, score


if __name__ == "__main__":
    print(main(total_timesteps=200_000))
